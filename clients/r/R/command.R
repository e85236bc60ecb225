# Runs the gpumux command, which does everything that is more than asking.

# The path of the command: GPUMUX_BINARY, or what PATH has.
command <- function() {
  path <- Sys.getenv("GPUMUX_BINARY")
  if (!nzchar(path)) path <- Sys.which("gpumux")[[1L]]
  if (!nzchar(path)) stop("there is no gpumux command; put it on PATH, or name it in GPUMUX_BINARY", call. = FALSE)
  path
}

# The command with these words, as a process of its own group: Ctrl-C is the session's to act on. It ends by itself when the session is
# gone, since nobody reads what it writes.
start <- function(words, stdin = NULL) {
  # processx draws from the session's random numbers.
  state <- get0(".Random.seed", globalenv(), inherits = FALSE)
  on.exit(set_state(state))
  # Task processes find this R, its packages and what reticulate is told.
  environ <- c(
    "current",
    PATH = paste(c(R.home("bin"), Sys.getenv("PATH")), collapse = .Platform$path.sep),
    R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep)
  )
  processx::process$new(command(), words, stdin = stdin, stdout = "|", stderr = tempfile("gpumux-"), env = environ, cleanup = FALSE,
    encoding = "UTF-8")
}

# The lines that it has written by now, waiting for some for at most so many milliseconds; NULL at the end.
lines_of <- function(process, wait = -1L) {
  process$poll_io(wait)
  lines <- process$read_output_lines()
  if (length(lines) > 0L || process$is_incomplete_output()) lines
}

# End it, and wait until nothing of it is left. What has finished is kept.
end <- function(process) {
  if (process$is_alive()) {
    process$signal(tools::SIGTERM)
    process$wait(20000L)
    process$kill()
  }
  if (process$has_input_connection()) close(process$get_input_connection())
  close(process$get_output_connection())
  unlink(process$get_error_file())
}

# After its lines: tell its notes, or stop with its error. Items that failed are none: lines say so.
check <- function(process) {
  process$wait()
  status <- process$get_exit_status()
  said <- readLines(process$get_error_file(), warn = FALSE)
  notes <- startsWith(said, "note: ")
  for (note in said[notes]) message(in_r(note))
  if (status %in% 0:1) return(invisible())
  text <- in_r(paste(grep("^see `gpumux .*--help`$", said[!notes], value = TRUE, invert = TRUE), collapse = "\n"))
  if (!nzchar(text)) text <- paste("gpumux ended with", if (status < 0L) paste("signal", -status) else paste("status", status))
  stop(structure(class = c("gpumux_command", "error", "condition"), list(message = text, call = NULL, status = status)))
}
