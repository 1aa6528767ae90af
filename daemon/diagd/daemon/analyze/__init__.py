"""Offline: what ranks left behind (dumps, a dump folder, a recording), judged by the detectors of the live road."""
