"""The node's agent: what each rank of this machine does, read without the ranks' help, as plain values."""
