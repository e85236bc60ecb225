# Describes conditions for the worker, which classifies them.

MAX_MESSAGE <- 8192L
MAX_TRACEBACK <- 65536L
MAX_CALLS <- 50L

# The fault of a condition, as JSON; calls are those that were open when it was signalled.
describe <- function(e, calls = NULL) {
  fields <- c(class = quoted(class(e)[[1L]]), message = quoted(cut_text(conditionMessage(e), MAX_MESSAGE)))
  trace <- traceback_of(e, calls)
  if (nzchar(trace)) fields[["traceback"]] <- quoted(trace)
  chain <- character()
  while (inherits(e <- e$parent, "condition") && length(chain) < 16L) {
    chain <- c(chain, paste0('{"class":', quoted(class(e)[[1L]]), ',"message":', quoted(cut_text(conditionMessage(e), MAX_MESSAGE)), "}"))
  }
  if (length(chain) > 0L) fields[["chain"]] <- array_of(chain)
  paste0("{", paste0('"', names(fields), '":', fields, collapse = ","), "}")
}

# The calls of the task, the outermost first, and the error as R prints it.
traceback_of <- function(e, calls) {
  mark <- which(vapply(calls, function(call) identical(call[[1L]], quote(enter)), NA))
  if (length(mark) == 0L) return("")
  calls <- calls[-seq_len(mark[[1L]])]
  last <- which(vapply(calls, function(call) identical(call[[1L]], quote(.handleSimpleError)) || is.function(call[[1L]]), NA))
  if (length(last) > 0L) calls <- calls[seq_len(min(last) - 1L)]
  lines <- vapply(calls, line_of, "")
  if (length(lines) > MAX_CALLS) {
    half <- MAX_CALLS %/% 2L
    lines <- c(head_of(lines, half), sprintf("  ... %d calls ...", length(lines) - 2L * half), lines[length(lines) - half + seq_len(half)])
  }
  cut_text(paste(c(lines, paste0("Error: ", conditionMessage(e))), collapse = "\n"), MAX_TRACEBACK)
}

head_of <- function(x, n) x[seq_len(min(n, length(x)))]

# A call in one line, with its place in a file where R knows it.
line_of <- function(call) {
  source <- attr(call, "srcref")
  where <- if (is.null(source)) "" else sprintf(" at %s#%d", basename(attr(source, "srcfile")$filename), source[[1L]])
  text <- deparse(call, width.cutoff = 60L, nlines = 1L)
  paste0("  ", if (nchar(text) > 120L) paste0(substr(text, 1L, 119L), "\u2026") else text, where)
}

cut_text <- function(text, most) {
  text <- enc2utf8(text)
  text[!validUTF8(text)] <- iconv(text[!validUTF8(text)], "latin1", "UTF-8")
  if (nchar(text) > most) paste0(substr(text, 1L, most %/% 2L), "\n... cut ...\n", substring(text, nchar(text) - most %/% 2L)) else text
}
