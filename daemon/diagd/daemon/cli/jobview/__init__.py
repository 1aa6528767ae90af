"""A running job for people: read it, lay it out for a window, let it be walked through by keys."""
