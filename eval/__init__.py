"""Suites of published data sets, tables of systems, and benchmarks."""
