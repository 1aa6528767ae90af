"""What `diagd run` starts beside the job: the node's agent and, but for --aggregator, the job's aggregator."""
