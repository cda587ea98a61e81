"""Topics as tables: tasks, the files they write, and the commit that makes them one job. Spark is not needed."""
