# Finds the function that a task names, and gives it what it may use.

# The function of "file.R:function", or an error that says why there is none.
load_task <- function(target, folder) {
  at <- regexpr(":[^:]*$", target)
  file <- substr(target, 1L, at - 1L)
  name <- substring(target, at + 1L)
  path <- if (startsWith(file, "/")) file else file.path(if (nzchar(folder)) folder else getwd(), file)
  if (!file.exists(path)) {
    beside <- list.files(dirname(path), pattern = "\\.[Rr]$")
    there <- if (length(beside) > 0L) paste(head_of(beside, 20L), collapse = ", ") else "no .R files"
    stop(condition("FileNotFoundError", "there is no ", path, "; the folder has: ", there))
  }
  enter(sys.source(path, globalenv(), chdir = TRUE, keep.source = TRUE))
  found <- get0(name, globalenv(), inherits = FALSE)
  if (!is.function(found)) {
    what <- if (is.null(found)) "no function " else "a value, not a function, "
    stop(condition("NotFoundError", file, " has ", what, name, "; it has: ", paste(head_of(functions(), 20L), collapse = ", ")))
  }
  found
}

functions <- function() Filter(function(name) is.function(get(name, globalenv())), ls(globalenv()))

# What the traceback of a task begins behind.
enter <- function(value) value

# Frameworks in a Python that reticulate starts in this process get the slot's limits from the runtime of Python tasks, whose main.py is
# this program's argument.
limit_python <- function(room) {
  main <- commandArgs(TRUE)
  if (length(room) == 0L || length(main) == 0L) return()
  code <- c(
    "import sys", paste0("sys.path.insert(0, ", quoted(dirname(dirname(dirname(main[[1L]])))), ")"), "try:", "    from gpumux.process import memory",
    paste0("    memory.cap(", whole(room), ")"), "finally:", "    del sys.path[0]"
  )
  setHook("reticulate.onPyInit", function(...) get("py_run_string", asNamespace("reticulate"))(paste(code, collapse = "\n"), local = TRUE))
}

# What a task finds beside R's own functions. An exit call fails the item, not the process.
offer <- function(hello, report) {
  leave <- function(...) stop(condition("QuitError", "the task called quit(); return a value or stop() instead"))
  slot <- hello[c("slot", "device", "memory", "mode", "task")]
  there <- list(quit = leave, q = leave, gpu_slot = function() slot, gpu_progress = report)
  get("attach", baseenv())(there, name = "gpumux", warn.conflicts = FALSE)
}
