"""Spark itself: its session and JVM, its errors, what a job works on while it runs."""
