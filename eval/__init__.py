"""Suites, tables and benchmarks."""
