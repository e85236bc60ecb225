// Made of docs/schema by `go test . -run TestSchema -update`.

export interface Stage {
  /** task, edition and ladder are those of the stage. */
  task: string;
  /** task, edition and ladder are those of the stage. */
  edition?: string | null;
  /** task, edition and ladder are those of the stage. */
  ladder?: Array<string> | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  arg?: unknown;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  mode?: "persistent" | "fresh" | "" | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  chunk?: number | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  timeout?: number | string | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  attempts?: number | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  retryOn?: Array<string> | null;
  /** arg, mode, chunk, timeout, attempts, retryOn and backoff hold for the stage alone. */
  backoff?: number | string | null;
  /** keep leaves the values of the stage in the store when the map has ended, so that a map of the same ID with other code in later stages need not run it again. The last stage's values are the results. */
  keep?: boolean | null;
}

export interface Range {
  start?: number | null;
  end?: number | null;
}

export interface MapInput {
  /** task is the name of a task that the workers of every pool on the ladder know. */
  task?: string | null;
  /** stages are several tasks in place of task: the value of an item in one is its input in the next, and all work at once. The results are the values of the last. */
  stages?: Array<Stage> | null;
  /** edition is the edition of the task's code to run with. Default: that of the first worker that answers. All items run with one edition; where no worker has it, the map fails. With "any", AnyEdition, each item runs with the code that its worker has, so results of one map may come from several versions of the code. */
  edition?: string | null;
  /** items are at most 1000, and 512KiB in all. */
  items?: Array<unknown> | null;
  /** source is a file of items, by its key in the workers' store or by URL: JSON lines, .csv with a header, or the rows of a .parquet file. */
  source?: string | null;
  /** columns lists the columns of a table that its items have, in this order. Default: all. */
  columns?: Array<string> | null;
  /** range makes the items the whole numbers start, start+1, … end-1. */
  range?: Range | null;
  /** arg is shared by all items, such as a configuration: a JSON value of at most 16KiB. Processes find it in GPUMUX_ARG, in Python with gpumux.arg(), and a class in its constructor's arguments. Default: none. */
  arg?: unknown;
  /** argFile is a file with the JSON of a larger arg, at most 16KiBFile, by its key in the workers' store or by URL. Processes find a file of their own in GPUMUX_ARG_FILE, in Python the value with gpumux.arg(). Starter makes it of a large arg. */
  argFile?: string | null;
  /** ladder names the pools to use, first choice first. Default ["gpu"]. */
  ladder?: Array<string> | null;
  /** patience is how long a pool may lack a worker with a healthy device before the next one takes its work, until there is one again. Default 1 min; the last pool is always waited for. */
  patience?: number | string | null;
  /** poolTimeout fails the map when there has been no worker with a healthy device for any pool of the ladder for so long. A paused map waits. Default: it waits in any case. */
  poolTimeout?: number | string | null;
  /** mapTimeout fails the map when it takes longer. Running items are ended. Default: none. */
  mapTimeout?: number | string | null;
  /** mode overrides the task's own mode. Default: the task's, else the pool's. */
  mode?: "persistent" | "fresh" | "" | null;
  /** chunk is the number of items per chunk; 0 lets the map learn it. */
  chunk?: number | null;
  /** window is the number of chunks in flight; 0 lets the map learn it. */
  window?: number | null;
  /** timeout bounds one item; 0 means the task's own, else none. */
  timeout?: number | string | null;
  /** attempts is how often an item that raises is tried. Default 1. Deaths of the process do not count. */
  attempts?: number | null;
  /** retryOn names the exceptions that attempts is for, such as "TimeoutError" or "openai.RateLimitError"; classes made of them count. In R it names classes of conditions, and of a command its exit statuses, such as "75". Default: all. */
  retryOn?: Array<string> | null;
  /** backoff is the pause before an item that raised is tried again, without a slot. It doubles with each try, up to a minute. Default: none, and the process stays. */
  backoff?: number | string | null;
  /** maxFailures ends the map when more items than that have failed; "0" at the first that fails. Failures of an earlier run do not count. */
  maxFailures?: number | string | null;
  /** output is the results file: a blob URL or a key in the workers' store. Default: a file in a folder of the map's run. */
  output?: string | null;
  /** key names a field of the items, which is copied into their results; null where an item lacks it. withItem copies the whole item. */
  key?: string | null;
  /** key names a field of the items, which is copied into their results; null where an item lacks it. withItem copies the whole item. */
  withItem?: boolean | null;
  /** priority is 1 (first) to 5 (last); 0 means the server's default, 3. */
  priority?: number | null;
  /** fairnessKey shares a pool between keys, so that one large map does not hold up the others. Default: the map's workflow has a key of its own. */
  fairnessKey?: string | null;
  /** fairnessWeight is the share of the key beside others, 0.001 to 1000. Default 1. */
  fairnessWeight?: number | null;
}

export interface Fault {
  kind: "device_oom" | "budget" | "host_oom" | "crash" | "timeout" | "device_lost" | "task_error" | "bad_input" | "canceled";
  /** item is the beginning of the item that failed, index its position in the map. The fault of a result has no index. */
  item?: string;
  /** item is the beginning of the item that failed, index its position in the map. The fault of a result has no index. */
  index?: number;
  /** op is the step that failed: "start" of a task process, "run" of an item, "read" of a stream's line. */
  op?: string;
  /** message is one line, in the framework's own words where there are any. */
  message: string;
  /** class is the exception's class, such as ValueError or torch.OutOfMemoryError. */
  class?: string;
  task?: string;
  /** slot is pool/number, device the device's UUID, host the worker's host name. */
  slot?: string;
  /** slot is pool/number, device the device's UUID, host the worker's host name. */
  device?: string;
  /** slot is pool/number, device the device's UUID, host the worker's host name. */
  host?: string;
  pid?: number;
  /** exit is how the process ended, such as "exit status 3" or "signal SIGSEGV". */
  exit?: string;
  budget?: number;
  peak?: number;
  requested?: number;
  total?: number;
  free?: number;
  /** attempts is how often the item was tried. final says that its exception is none of those that are tried again. */
  attempts?: number;
  /** attempts is how often the item was tried. final says that its exception is none of those that are tried again. */
  final?: boolean;
  traceback?: string;
  /** tail is the end of the process's output. */
  tail?: string;
  hint?: string;
  /** edition is the edition of the worker's code, where it is not the map's. */
  edition?: string;
  /** batch is how many items may have been under way in one micro-batch, or of the same chunk at the same time; 0: single items. */
  batch?: number;
  /** alone says that no other item had run in the process that died. */
  alone?: boolean;
  /** blameless says that the item is not to blame, so that another try costs no attempt. */
  blameless?: boolean;
}

export interface Result {
  /** index is the item's position in the input, from 0. */
  index: number;
  value?: unknown;
  fault?: Fault;
  /** output is the item's output and log, cut in the middle when it is long. */
  output?: string;
  /** files are the names of the files that the item kept with gpumux.save. */
  files?: Array<string>;
  /** key and item are there if key and withItem of the input ask for them. */
  key?: unknown;
  /** key and item are there if key and withItem of the input ask for them. */
  item?: unknown;
}

export interface Peaks {
  items: number;
  p50: number;
  p99: number;
  max: number;
  budget?: number;
  gpus?: number;
  first: number;
  counts: Array<number>;
}

export interface GPUUse {
  /** time is how long the map had GPUs, from the moment that it had a slot: starts of processes count. */
  time: number;
  /** computing is the part of time in which a kernel ran, as nvidia-smi counts it: on one core or on all. slowed is the part with clocks lowered for heat, or for want of power. */
  computing: number;
  /** computing is the part of time in which a kernel ran, as nvidia-smi counts it: on one core or on all. slowed is the part with clocks lowered for heat, or for want of power. */
  slowed?: number;
  /** energy is in joules; 0 where the driver does not tell. */
  energy?: number;
  /** cost is time by the price of the pools that have one. */
  cost?: number;
  /** slots is how long slots of GPUs were held, busy how long of that items ran in them. */
  slots: number;
  /** slots is how long slots of GPUs were held, busy how long of that items ran in them. */
  busy: number;
  /** slots is how long slots of GPUs were held, busy how long of that items ran in them. */
  items: number;
}

export interface StageProgress {
  task: string;
  ladder: Array<string>;
  /** succeeded and failed count the items that ended in this stage. running are those of the inFlight chunks, waiting those that could begin here. */
  succeeded: number;
  /** succeeded and failed count the items that ended in this stage. running are those of the inFlight chunks, waiting those that could begin here. */
  failed: number;
  /** succeeded and failed count the items that ended in this stage. running are those of the inFlight chunks, waiting those that could begin here. */
  running: number;
  /** succeeded and failed count the items that ended in this stage. running are those of the inFlight chunks, waiting those that could begin here. */
  waiting: number;
  /** succeeded and failed count the items that ended in this stage. running are those of the inFlight chunks, waiting those that could begin here. */
  inFlight: number;
  chunks: number;
  /** slots is how many it has, as far as workers have told, itemTime the time of an item in one; 0: not known. */
  slots?: number;
  /** slots is how many it has, as far as workers have told, itemTime the time of an item in one; 0: not known. */
  itemTime?: number;
  /** busy is the time that slots spent on its items, summed. */
  busy: number;
  peak?: Peaks;
  gpu?: GPUUse;
}

export interface Summary {
  task: string;
  items: number;
  succeeded: number;
  failed: number;
  faults?: { [name: string]: number };
  /** output is the URL of the results file. results are its contents in input order, where they are at most 1000 and 512KiB. */
  output?: string;
  /** output is the URL of the results file. results are its contents in input order, where they are at most 1000 and 512KiB. */
  results?: Array<Result>;
  /** busy is the time that slots spent on items, summed. */
  busy: number;
  /** elapsed is the time from the start of the workflow to its end. */
  elapsed: number;
  chunks: number;
  /** peak is the memory that the items needed, where it was measured. */
  peak?: Peaks;
  /** gpu is what GPUs did for them. */
  gpu?: GPUUse;
  /** passedOver are pools of the ladder that had no worker with a healthy device for a time. */
  passedOver?: Array<string>;
  /** stages are those of a map that has some, as they were at its end. */
  stages?: Array<StageProgress>;
}

export interface RungBacklog {
  rung: string;
  items: number;
}

export interface Progress {
  task: string;
  phase: "indexing" | "running" | "merging" | "done";
  items: number;
  succeeded: number;
  failed: number;
  faults?: { [name: string]: number };
  /** inFlight is the number of chunks handed to pools and not yet back. */
  inFlight: number;
  window: number;
  chunk: number;
  chunks: number;
  paused: boolean;
  /** waitingFor names what holds the map up, as far as its workflow knows, such as "a slot of pool gpu". Empty: its work goes on. */
  waitingFor?: string;
  started: string;
  /** rate is items per second of workflow time, over the finished chunks. */
  rate: number;
  /** backlog counts the items without a result by rung of the ladder, served or not; itemTime is the time of one in a slot, 0 while unknown. */
  backlog?: Array<RungBacklog>;
  /** backlog counts the items without a result by rung of the ladder, served or not; itemTime is the time of one in a slot, 0 while unknown. */
  itemTime?: number;
  /** recent are the newest failures, at most five. */
  recent?: Array<Result>;
  output?: string;
  /** waiting is how many items raised and wait to be tried again. */
  waiting?: number;
  /** lost says why finished items run again, where their results were damaged or gone. */
  lost?: string;
  /** passedOver are the pools of the ladder that have no worker with a healthy device. */
  passedOver?: Array<string>;
  /** peak is the memory that the finished items needed, where it was measured. */
  peak?: Peaks;
  /** gpu is what GPUs did for the finished chunks. */
  gpu?: GPUUse;
  /** stages are those of a map that has some. succeeded then counts the items that have gone through all, failed those that failed in any. */
  stages?: Array<StageProgress>;
}
