# Runs the gpumux command, which does everything that is more than asking.

# The path of the command: GPUMUX_BINARY, or what PATH has.
command <- function() {
  path <- Sys.getenv("GPUMUX_BINARY")
  if (!nzchar(path)) path <- Sys.which("gpumux")[[1L]]
  if (!nzchar(path)) stop("there is no gpumux command; put it on PATH, or name it in GPUMUX_BINARY", call. = FALSE)
  path
}

# The lines that the command prints with these words. Its errors are R's, but not items that failed: lines say so.
run <- function(words) {
  said <- tempfile("gpumux-")
  on.exit(unlink(said))
  # Task processes find this R, its packages and what reticulate is told.
  environ <- c(
    PATH = paste(c(R.home("bin"), Sys.getenv("PATH")), collapse = .Platform$path.sep),
    R_LIBS = paste(.libPaths(), collapse = .Platform$path.sep)
  )
  set <- paste0(names(environ), "=", shQuote(environ), collapse = " ")
  from <- pipe(paste(set, "exec", paste(shQuote(c(command(), words)), collapse = " "), "2>", shQuote(said)), "r")
  # Without a reader the command ends its processes and keeps what has finished.
  on.exit(if (!is.null(from)) close(from), add = TRUE, after = FALSE)
  lines <- readLines(from)
  status <- close(from)
  from <- NULL
  # Its exit status, or the signal that it died by, as the system gives them: 1 says that items failed.
  status <- if (is.null(status)) 0L else as.integer(status)
  if (status %in% c(0L, 256L)) {
    for (note in grep("^note: ", readLines(said, warn = FALSE), value = TRUE)) message(note)
    return(lines)
  }
  text <- paste(sub("^gpumux: ", "", readLines(said, warn = FALSE)), collapse = "\n")
  how <- if (status %% 256L == 0L) paste("status", status %/% 256L) else paste("signal", status %% 128L)
  stop(structure(class = c("gpumux_command", "error", "condition"), list(
    message = paste0("gpumux ended with ", how, if (nzchar(text)) ": ", text), call = NULL, status = status
  )))
}
