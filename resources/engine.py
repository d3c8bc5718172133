"""The servers and the Spark that the configuration file named by RMT_CONFIG describes."""

from rmt_pipeline.dagster.location import rmt_resources

engine = rmt_resources()["engine"]
spark = rmt_resources()["spark"]
