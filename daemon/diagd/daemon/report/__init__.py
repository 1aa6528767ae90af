"""Incidents for people: as text, and as a page."""
