"""What training leaves behind (logs, tables, event files), as columns of metrics."""
