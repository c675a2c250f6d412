"""Benchmarks for those who develop the package; no part of the wheel. In a checkout, ``hipgraphdsl bench NAME`` runs them."""
