"""Drivers of the coordinators for unit tests, scenarios and simulations: no broker, no network, a manual clock."""
