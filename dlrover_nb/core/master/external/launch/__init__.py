"""How programs start: the script in a pod, the variables by which programs meet, and the machine of each."""
