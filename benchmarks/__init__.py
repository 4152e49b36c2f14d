"""Benchmarks of superbatch: workloads, a decode floor, peers; run with ``python -m benchmarks``."""
