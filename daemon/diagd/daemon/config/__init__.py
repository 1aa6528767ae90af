"""The only reader of files and of the environment for the daemon."""
