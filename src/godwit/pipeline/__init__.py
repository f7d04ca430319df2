"""The data pipeline on Spark: the journal as a table, and what is made of it.

Three kinds of modules, each with one job:

* **Transforms** (`transforms/*.py`) are pure functions from DataFrame to DataFrame. They know no path, no URL, no
  clock and no session, so that three rows are enough to test one.
* **Input and output** stays out of them: `source` reads journals (`spark.readStream.format("godwit")`), `sink`
  publishes rows, `lake` keeps Parquet files behind a manifest, `positions` says how far a pipeline has come, and
  `session` starts and ends Spark.
* **Jobs** (`jobs/*.py`) are thin: they open a session, read, call transforms, write, and say what they did. Each has
  one command in `godwit.cli.pipeline`.

Code that runs in Spark's Python workers (`source`, `sink`, `decoding`, functions given to `mapInArrow`) imports
nothing that is not installed there: the workers see `godwit` and `pyspark_godwit` and nothing of the driver.

Exactly once is a position in the store, compared and set in one transaction together with everything a batch writes;
Spark's checkpoint is only a hint where to go on. No job keeps Spark state or a watermark.
"""
