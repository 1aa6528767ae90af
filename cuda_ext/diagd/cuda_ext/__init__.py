"""Device code of diagd comes here, each piece beside a pure-Python twin for machines without CUDA."""
