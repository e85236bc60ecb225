# Puts what the command says into R's words: its flags are arguments here, and a task is a function of the session.

# Patterns of what it says, each with what that is in R. Other flags are those of whole commands, which stay.
in_words <- c(
  "(?m)^gpumux: | with --local|, or add a larger pool to the ladder|, as interpreter or venv in the worker's file" = "",
  "invalid argument (\"(?:[^\"\\\\]|\\\\.)*\") for \"(--[a-z-]+)\" flag:" = "\\2: \\1:",
  "(?<=lower )memory or slots" = "`memory_per_worker_mb` or `n_workers`",
  "(?<=lower )reserve" = "`reserve_memory_mb`",
  "slots: 1(, sharing: mps in all pools on it)?" = "one of `n_workers` for each GPU",
  "give the pool more memory or fewer slots" = "give more `memory_per_worker_mb` or fewer `n_workers`",
  "give the pool memory: so" = "give `memory_per_worker_mb`, so",
  "run fewer slots on this host" = "choose fewer `n_workers`",
  "choose devices in the pool" = "choose GPUs with `gpu_ids`",
  "a pool of larger devices" = "larger GPUs in `gpu_ids`",
  "use a pool of GPUs( \\(--pool gpu\\))?" = "choose slots of GPUs with gpu_daemons()",
  "; for several GPUs use a pool with gpus_per_slot" = "",
  "in the task's env" = "with Sys.setenv() in this session",
  "--devices cpu runs" = "gpu_daemons(1, gpu_ids = \"cpu\") runs",
  "where it needs longer, raise start: .* \\(a task's timeout is for items\\)" = "a start may take 5 minutes, so do what takes longer in the function",
  "it must be a Python of version 3.9 or newer \\([^)]*\\); see" = "see",
  "give another Python" = "start the session with another R",
  "out of the module, or put it under if __name__ == \"__main__\"" = "out of what the attached packages run at their start",
  " \\(os\\._exit\\?\\); return a value or raise instead" = "; return a value or stop() instead",
  "os\\._exit, a C library's exit" = "a C library's exit",
  " \\(os\\.closerange, os\\.dup2\\)" = "",
  "name the pools with --slots .*$" = "give `.pools`, one for each function, such as c(\"cpu\", \"gpu\")",
  "--slots" = "`n_workers`", "--devices" = "`gpu_ids`", "--memory" = "`memory_per_worker_mb`", "--reserve" = "`reserve_memory_mb`",
  "--mode" = "`worker_type`", "--pass-env(?=:)" = "options(gpumux.pass_env)"
)

in_r <- function(text) {
  for (said in names(in_words)) text <- gsub(said, in_words[[said]], text, perl = TRUE)
  text <- replaced("--pass-env \\S+", text, function(flag) {
    names <- strsplit(sub("--pass-env ", "", flag), ",")[[1L]]
    sprintf("options(gpumux.pass_env = c(%s))", paste0("\"", names, "\"", collapse = ", "))
  })
  # Sizes are rounded where they are shown: up to the next 256 MiB there is room.
  replaced("the pool memory: [0-9.]+[MG]iB", text, function(memory) {
    mb <- as.numeric(gsub("[^0-9.]", "", memory)) * if (endsWith(memory, "GiB")) 1024 else 1
    sprintf("`memory_per_worker_mb = %s`", number(ceiling(mb / 256) * 256))
  })
}

# The text with what fits the pattern replaced by what make gives for it.
replaced <- function(pattern, text, make) {
  found <- gregexpr(pattern, text)
  regmatches(text, found) <- lapply(regmatches(text, found), vapply, make, "")
  text
}
