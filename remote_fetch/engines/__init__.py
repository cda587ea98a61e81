"""Topics for engines with a planner of their own: Polars, DuckDB, and what takes datasets or tasks."""
