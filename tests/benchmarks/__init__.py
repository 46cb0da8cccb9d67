"""The benchmarks: the peers' results, the arithmetic of what things cost, and the page that shows both."""
