"""What an aggregator took in, to a file and back."""
