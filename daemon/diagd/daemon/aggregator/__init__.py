"""What the agents see comes in over gRPC; verdicts, reports and metrics go out."""
