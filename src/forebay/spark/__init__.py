"""Queues on Spark: sources, sinks and flows. Needs the `spark` extra; nothing here is a JAR."""
