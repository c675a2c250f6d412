"""Benchmarks, each a module with `add_arguments(parser)` and `main(args) -> int`; run by ``hipgraphdsl bench NAME``.

All of them take ratios within one run, because machines and their noise differ; none asserts a time.
"""
