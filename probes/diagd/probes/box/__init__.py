"""The rank box: a fixed-size file that a rank writes and anyone may read, also after the rank's death."""
