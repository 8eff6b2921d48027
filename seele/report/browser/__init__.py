"""A run's rollouts in a browser: ``seele view``, and the page of rollouts that ``seele report`` writes."""
