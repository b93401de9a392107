"""Tools for whoever tests a kernel, a store or a guard."""
