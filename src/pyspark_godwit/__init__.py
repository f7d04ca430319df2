"""Makes `spark.read.format("godwit")` work: Spark looks for `DefaultSource` in packages named `pyspark_*` by itself."""

from godwit.pipeline.source.data_source import GodwitSource as DefaultSource

__all__ = ["DefaultSource"]
