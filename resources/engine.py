"""The servers of the configuration that RMT_CONFIG names, and the Spark that it names."""

from rmt_pipeline.dagster.location import rmt_resources

engine = rmt_resources()["engine"]
spark = rmt_resources()["spark"]
