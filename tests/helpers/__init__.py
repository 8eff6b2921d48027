"""What several test files share; importable without torch, verl and pandas."""
