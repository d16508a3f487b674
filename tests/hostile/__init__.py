"""What a tool meets that is trusted with long runs and strangers' files: bad values, files, signals, full disks."""
