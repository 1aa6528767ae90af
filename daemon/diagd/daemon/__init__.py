"""The processes around the job: agent, aggregator, and the commands that start and ask them."""
