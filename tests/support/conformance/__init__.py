"""Contracts: what every implementation of an interface must do, as classes to inherit from."""
