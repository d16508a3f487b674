"""Pods: what chips can do, and what a run costs on them."""
