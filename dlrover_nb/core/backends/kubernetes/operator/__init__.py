"""Jobs whose pods DLRover's operator manages: ElasticJobs and ScalePlans."""
