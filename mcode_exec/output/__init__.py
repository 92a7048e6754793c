"""What leaves the process: stdout, stderr and the files that flags name.  It never knows where a value came from."""
