"""`diagd selftest`: plants each fault into a small job of its own, and looks whether the verdict comes."""
