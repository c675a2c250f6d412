"""Convert a workflow to a document (plain data), the document to text, and back.

Each array, parameter and node is on one line, in order of declaration, so that a changed number gives a one-line diff.

::

    {
     "hipgraphdsl": 1,                                            the version comes first
     "name": "demo",
     "infer": true,
     "modules": {
      "kernels_1f2e3d4c": {"source": [                            one source line per line
       "__global__ void scale(float* x, float a) {",
       ...
     "arrays": [
      {"name": "x", "kind": "device", "dtype": "float32", "shape": [1024]},
     "parameters": [
      {"name": "a", "dtype": "float32", "default": 2.0}
     "nodes": [
      {"name": "scale", "kind": "kernel", "kernel": "kernels_1f2e3d4c:scale", "grid": 4, "block": 64, ...},
     "order": [["copy_in", "scale"]],                             what `order` added
     "workflows": {"child": {...}}                                children, each once, inner ones first

References are text: ``"x[3, 8:248, 0:10:2]"`` is a view, ``{"param": "a"}`` a parameter (or a view of one),
``{"symbol": "module:table[0:4]"}`` a variable of a module, ``{"read": view}``, ``{"write": view}`` and ``{"update":
view}`` say how an argument is used. Values that JSON lacks are tagged: ``{"float": "nan"}``, ``{"complex": [re,
im]}``, ``{"bytes": base64}``, ``{"str": text}``, ``{"tuple": [...]}``, ``{"dict": {...}}``, ``{"numpy": dtype,
"value": v}``, ``{"struct": dtype, "base64": b}`` (a NaN with a payload too), ``{"ndarray": dtype, "shape": [...], "base64": b}``.

Inferred edges are not stored: loading replays the declarations, which infers them again. References of
kernels (NumPy functions for `verify`), handles of semaphores and source locations of declarations are not stored. Loading
does not run, compile or import anything.
"""
