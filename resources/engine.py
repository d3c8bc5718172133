"""The servers of the configuration that RMT_CONFIG names, and the Spark that it names."""

from rmt_pipeline.dagster.engine import EngineResource
from rmt_pipeline.dagster.spark import SparkResource

engine = EngineResource()
spark = SparkResource()
