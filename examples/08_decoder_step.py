"""One step of a decoder, launched once for each token, with an operation of PyTorch in its middle.

A transformer decoder writes a text token by token. A step looks up the last token, appends its key and value to a cache,
attends to everything in the cache, and chooses the next token. The place in the text is a parameter of the launch; all
else stays the same, so the step is one description that is launched again and again.

The softmax of the attention is PyTorch's, an operation that no graph of ours can hold. It is an eager step: the host
calls a Python function with the stream and the memory of the graph. The workflow is cut there, into graphs of what
precedes the softmax, of what follows it, and of what does neither: the new value is computed beside it. Where there is
no PyTorch, NumPy computes the softmax on the host.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import hipgraphdsl as hg

SOURCE = r"""
extern "C" __global__ void look_up(const float* words, const float* places, const int* text, float* x, int at, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width) x[i] = words[text[at] * width + i] + places[at * width + i];
}
// y = W x, in row `at` of y; then its negative part is cut off, or another vector is added.
extern "C" __global__ void linear(const float* w, const float* x, float* y, int rows, int columns, int at, int cut, int add) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    float sum = 0.0f;
    for (int k = 0; k < columns; ++k) sum += w[i * columns + k] * x[k];
    if (cut) sum = fmaxf(sum, 0.0f);
    y[at * rows + i] = add ? y[at * rows + i] + sum : sum;
}
extern "C" __global__ void compare(const float* q, const float* keys, float* scores, int at, int length, int heads, int width) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x, head = blockIdx.y, part = width / heads;
    if (t >= length) return;
    float sum = 0.0f;
    for (int k = head * part; k < (head + 1) * part; ++k) sum += q[k] * keys[t * width + k];
    scores[head * length + t] = t <= at ? sum / sqrtf(part) : -3e38f;  // of what is not there yet
}
extern "C" __global__ void mix(const float* weights, const float* values, float* y, int at, int length, int heads, int width) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width) return;
    float sum = 0.0f;
    for (int t = 0; t <= at; ++t) sum += weights[i / (width / heads) * length + t] * values[t * width + i];
    y[i] = sum;
}
extern "C" __global__ void choose(const float* logits, int* text, int at, int words) {
    int best = 0;
    for (int i = 1; i < words; ++i) if (logits[i] > logits[best]) best = i;
    text[at + 1] = best;
}
"""
TOKENS = 64
WORDS, WIDTH, HEADS, HIDDEN = 96, 64, 4, 128
FIRST = 7  # the token that the text begins with
THREADS = 64


def torch_softmax(stream: Any, scores: Any) -> None:
    """Replace each row by its softmax, by PyTorch in the graph's own memory and on its stream."""
    import torch

    rows = torch.from_dlpack(scores)  # no copy
    if rows.is_cuda:  # torch calls an AMD GPU so too
        with torch.cuda.stream(torch.cuda.ExternalStream(int(stream), device=rows.device)):
            rows.copy_(torch.softmax(rows, -1))
    else:  # on the CPU torch computes at once, so what is on the stream must be done
        stream.runtime.stream_synchronize(int(stream))
        rows.copy_(torch.softmax(rows, -1))


def numpy_softmax(stream: Any, scores: np.ndarray) -> None:
    """Replace each row by its softmax; with a host array the function is called when all before it is done."""
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(-1, keepdims=True)


def weights(tokens: int) -> dict[str, np.ndarray]:
    """Return the weights of a decoder that has learned nothing."""
    random = np.random.default_rng(8)
    shapes = {"words": (WORDS, WIDTH), "places": (tokens, WIDTH), "query": (WIDTH, WIDTH), "key": (WIDTH, WIDTH),
              "value": (WIDTH, WIDTH), "mixed": (WIDTH, WIDTH), "wide": (HIDDEN, WIDTH), "narrow": (WIDTH, HIDDEN),
              "out": (WORDS, WIDTH)}  # fmt: skip
    return {
        name: (random.standard_normal((rows, columns)) / (1 if name in ("words", "places") else columns**0.5)).astype("float32")
        for name, (rows, columns) in shapes.items()
    }


def build(tokens: int = TOKENS, softmax: str = "torch") -> hg.Graph:
    """Declare one step.

    Parameters
    ----------
    tokens : int
        Length of the text, and of the cache.
    softmax : {"torch", "numpy"}
        What computes the softmax: NumPy needs the scores on the host, and a copy each way.
    """
    module = hg.Module(SOURCE)
    g = hg.Graph("decoder_step")
    at = g.param("at", "int32", 0)
    w = {name: g.device_array(name, values) for name, values in weights(tokens).items()}
    text = g.device_array("text", np.array([FIRST, *[0] * tokens], dtype="int32"))
    x, q, y = (g.device_array(name, shape=WIDTH, dtype="float32") for name in ("x", "q", "y"))
    keys, values = (g.device_array(name, shape=(tokens, WIDTH), dtype="float32") for name in ("keys", "values"))
    scores = g.device_array("scores", shape=(HEADS, tokens), dtype="float32")
    hidden = g.device_array("hidden", shape=HIDDEN, dtype="float32")
    logits = g.device_array("logits", shape=WORDS, dtype="float32")

    def kernel(name: str, threads: int, *args: Any, rows: int = 1, of: str = "") -> None:
        g.kernel(module[of or name], (-(-threads // THREADS), rows), THREADS, args, name=name)

    def linear(name: str, matrix: str, source: Any, target: Any, row: Any = 0, cut: int = 0, add: int = 0) -> None:
        rows, columns = w[matrix].shape
        kernel(name, rows, w[matrix], source, target, rows, columns, row, cut, add, of="linear")

    kernel("look_up", WIDTH, w["words"], w["places"], text, hg.writes(x), at, WIDTH)
    linear("query_of", "query", x, q)
    linear("key_of", "key", x, keys, at)
    linear("value_of", "value", x, values, at)
    kernel("compare", tokens, q, keys, hg.writes(scores), at, tokens, HEADS, WIDTH, rows=HEADS)
    if softmax == "torch":
        g.eager(torch_softmax, (scores,), name="softmax")
    else:
        on_host = g.host_array("on_host", shape=(HEADS, tokens), dtype="float32")
        g.memcpy(on_host, scores, name="down")
        g.eager(numpy_softmax, (on_host,), name="softmax")
        g.memcpy(scores, on_host, name="up")
    kernel("mix", WIDTH, scores, values, hg.writes(y), at, tokens, HEADS, WIDTH)
    linear("add_mixed", "mixed", y, x, add=1)
    linear("widen", "wide", x, hidden, cut=1)
    linear("narrow_again", "narrow", hidden, x, add=1)
    linear("score_words", "out", x, logits)
    g.kernel(module["choose"], 1, 1, (logits, text, at, WORDS))
    return g


def reference(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the text, and the logits of its last word, by NumPy."""
    w = weights(tokens)
    text, part = [FIRST], WIDTH // HEADS
    keys, values = np.zeros((tokens, WIDTH), "float32"), np.zeros((tokens, WIDTH), "float32")
    for at in range(tokens):
        x = w["words"][text[at]] + w["places"][at]
        q, keys[at], values[at] = w["query"] @ x, w["key"] @ x, w["value"] @ x
        y = np.empty(WIDTH, "float32")
        for head in range(0, WIDTH, part):
            some = slice(head, head + part)
            scores = (keys[: at + 1, some] @ q[some] / np.float32(part**0.5))[np.newaxis]
            numpy_softmax(None, scores)
            y[some] = scores[0] @ values[: at + 1, some]
        x = x + w["mixed"] @ y
        x = x + w["narrow"] @ np.maximum(w["wide"] @ x, 0)
        logits = w["out"] @ x
        text.append(int(logits.argmax()))
    return np.array(text), logits


def torch_is_missing(runtime: str) -> str:
    """Return why PyTorch cannot work on a runtime's memory; nothing if it can."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if runtime != "cpu" and not torch.cuda.is_available():
        return "this PyTorch finds no GPU"
    return ""


def main(argv: list[str] | None = None) -> int:
    """Let every backend write the text, and compare it with NumPy's."""
    parser = argparse.ArgumentParser(description="A decoder's step as graphs, with an operation of PyTorch between them.")
    parser.add_argument("--runtime", default="auto", help="auto, amd, nvidia or cpu (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="length of the text (default: %(default)s)")
    parser.add_argument("--softmax", choices=("torch", "numpy"), help="(default: torch where there is one)")
    options = parser.parse_args(argv)

    missing = torch_is_missing(options.runtime)  # before the runtime is opened: later torch might find other libraries
    if missing and options.softmax == "torch":
        print(f"Skipped: {missing}.")
        return 0
    softmax = options.softmax or ("numpy" if missing else "torch")
    print(f"The softmax is {softmax}'s" + (f", because {missing}." if missing and not options.softmax else "."))

    g = build(options.tokens, softmax)
    exact, wanted = reference(options.tokens)
    right = True
    for backend in ("serial", "streams", "capture", "explicit"):
        with g.compile(runtime=options.runtime, backend=backend) as exe:
            for at in range(options.tokens):
                exe.launch(at=at)
            exe.synchronize()
            text, logits = exe.read("text"), exe.read("logits")
        wrong, error = np.count_nonzero(text != exact), float(np.abs(logits - wanted).max())
        right &= wrong == 0 and error < 1e-3
        print(f"{backend:<8}  {options.tokens} tokens, {wrong} of them not NumPy's; the last logits differ by {error:.1e}")
    print("Text:", *exact)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
