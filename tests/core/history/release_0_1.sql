-- A history as release 0.1.0 made and filled it, in the order that foreign keys want. Never to be changed.
CREATE TABLE runs (
  run VARCHAR(96) NOT NULL,
  job VARCHAR(64) NOT NULL,
  owner VARCHAR(128) NOT NULL,
  started_at_s FLOAT NOT NULL,
  spec TEXT NOT NULL,
  PRIMARY KEY (run)
);
CREATE TABLE schema_version (
  version INTEGER NOT NULL,
  PRIMARY KEY (version)
);
CREATE TABLE phases (
  run VARCHAR(96) NOT NULL,
  at_s FLOAT NOT NULL,
  phase VARCHAR(16) NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (run, at_s, phase),
  FOREIGN KEY(run) REFERENCES runs (run)
);
CREATE TABLE proposals (
  run VARCHAR(96) NOT NULL,
  id VARCHAR(16) NOT NULL,
  created_at_s FLOAT NOT NULL,
  closed_at_s FLOAT,
  kind VARCHAR(16) NOT NULL,
  status VARCHAR(16) NOT NULL,
  "plan" VARCHAR(128) NOT NULL,
  predicted_samples_per_s FLOAT NOT NULL,
  cost_per_hour FLOAT NOT NULL,
  why TEXT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (run, id),
  FOREIGN KEY(run) REFERENCES runs (run)
);
CREATE TABLE decisions (
  run VARCHAR(96) NOT NULL,
  id VARCHAR(16) NOT NULL,
  at_s FLOAT NOT NULL,
  "by" VARCHAR(128) NOT NULL,
  verdict VARCHAR(16) NOT NULL,
  proposal VARCHAR(16),
  "plan" VARCHAR(128),
  why TEXT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (run, id),
  FOREIGN KEY(run) REFERENCES runs (run)
);
CREATE TABLE outcomes (
  run VARCHAR(96) NOT NULL,
  decision VARCHAR(16) NOT NULL,
  applied_at_s FLOAT NOT NULL,
  "plan" VARCHAR(128) NOT NULL,
  predicted_samples_per_s FLOAT,
  measured_samples_per_s FLOAT NOT NULL,
  pause_s FLOAT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (run, decision),
  FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "runs" VALUES('clicks@10.000','clicks','ada',10.0,'{"name":"clicks","owner":"ada","data":{"format":"census","path":"","label":"label","numeric":[],"categorical":[],"exclude":[],"holdout":0.1},"model":{"name":"wide_deep","embedding_dim":16,"hidden":[256,128,64],"hash_size":65536,"learning_rate":0.02,"initial_accumulator":0.1,"seed":0},"plan":{"worker":{"count":1,"cpu":0.5,"memory_mib":1024},"ps":{"count":1,"cpu":0.25,"memory_mib":512}},"bounds":{"max_workers":4,"max_ps":2,"worker_cpus":[0.25,0.5,0.75,1.0],"ps_cpus":[0.25,0.5,0.75,1.0]},"prices":{"currency":"USD","cpu_hour":0.034,"gib_hour":0.0045,"assumed":true},"mode":"suggest","batch_size":512,"n_epoch":1,"shard_batches":20,"seed":0,"checkpoint_every_s":60.0,"heartbeat_timeout_s":30.0}');
INSERT INTO "runs" VALUES('views@100.000','views','bob',100.0,'{"name":"views","owner":"bob","data":{"format":"census","path":"","label":"label","numeric":[],"categorical":[],"exclude":[],"holdout":0.1},"model":{"name":"wide_deep","embedding_dim":16,"hidden":[256,128,64],"hash_size":65536,"learning_rate":0.02,"initial_accumulator":0.1,"seed":0},"plan":{"worker":{"count":1,"cpu":0.5,"memory_mib":1024},"ps":{"count":1,"cpu":0.25,"memory_mib":512}},"bounds":{"max_workers":4,"max_ps":2,"worker_cpus":[0.25,0.5,0.75,1.0],"ps_cpus":[0.25,0.5,0.75,1.0]},"prices":{"currency":"USD","cpu_hour":0.034,"gib_hour":0.0045,"assumed":true},"mode":"suggest","batch_size":512,"n_epoch":1,"shard_batches":20,"seed":0,"checkpoint_every_s":60.0,"heartbeat_timeout_s":30.0}');
INSERT INTO "schema_version" VALUES(1);
INSERT INTO "phases" VALUES('clicks@10.000',12.0,'training','');
INSERT INTO "phases" VALUES('clicks@10.000',90.0,'succeeded','AUC 0.9');
INSERT INTO "proposals" VALUES('clicks@10.000','p1',20.0,22.0,'explore','applied','workers 2 x 0.5 cpu, 1024 MiB; ps 1 x 0.25 cpu, 512 MiB',100.0,0.1,'to learn','{"id":"p1","job":"clicks","kind":"explore","candidate":{"plan":{"worker":{"count":2,"cpu":0.5,"memory_mib":1024},"ps":{"count":1,"cpu":0.25,"memory_mib":512}},"prediction":{"samples_per_s":100.0,"low":80.0,"high":120.0,"extrapolates":true},"cost_per_hour":0.1,"cost_per_million":0.2,"finish_s":30.0,"scale":{"changes":[{"role":"worker","before":{"count":1,"cpu":0.5,"memory_mib":1024},"after":{"count":2,"cpu":0.5,"memory_mib":1024}}]},"transition_s":0.5,"gain_samples_per_s":40.0,"breakdown":[{"term":"sync","seconds":0.1,"share":1.0}],"reason":"because"},"baseline":{"plan":{"worker":{"count":2,"cpu":0.5,"memory_mib":1024},"ps":{"count":1,"cpu":0.25,"memory_mib":512}},"prediction":{"samples_per_s":100.0,"low":80.0,"high":120.0,"extrapolates":true},"cost_per_hour":0.1,"cost_per_million":0.2,"finish_s":30.0,"scale":{"changes":[{"role":"worker","before":{"count":1,"cpu":0.5,"memory_mib":1024},"after":{"count":2,"cpu":0.5,"memory_mib":1024}}]},"transition_s":0.5,"gain_samples_per_s":40.0,"breakdown":[{"term":"sync","seconds":0.1,"share":1.0}],"reason":"because"},"why":"to learn","created_at_s":20.0,"status":"applied","closed_at_s":22.0,"note":""}');
INSERT INTO "decisions" VALUES('clicks@10.000','d1',21.0,'ada','accept','p1',NULL,'it''s 5 % better','{"verdict":"accept","by":"ada","at_s":21.0,"proposal":"p1","plan":null,"mode":null,"why":"it''s 5 % better","id":"d1"}');
INSERT INTO "outcomes" VALUES('clicks@10.000','d1',22.0,'workers 2 x 0.5 cpu, 1024 MiB; ps 1 x 0.25 cpu, 512 MiB',100.0,110.0,0.5,'{"decision":"d1","plan":{"worker":{"count":2,"cpu":0.5,"memory_mib":1024},"ps":{"count":1,"cpu":0.25,"memory_mib":512}},"predicted":{"samples_per_s":100.0,"low":80.0,"high":120.0,"extrapolates":true},"measured_samples_per_s":110.0,"before_samples_per_s":70.0,"n_sample":5,"applied_at_s":22.0,"pause_s":0.5}');
CREATE INDEX runs_by_job ON runs (job, started_at_s);
CREATE INDEX decisions_by_time ON decisions (at_s);
