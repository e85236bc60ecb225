# Matrices have a sixteenth of the rows: no GPU computes them.
shape <- function(...) c(...) %/% 16
tf <- list(
  device = function(name) structure(list(name = name), class = "device"),
  random = list(normal = function(shape) matrix(rnorm(prod(shape)), shape[[1L]])),
  linalg = list(matmul = function(a, b) a %*% b),
  reduce_sum = sum
)
with.device <- function(data, expr, ...) {
  visible <- nzchar(Sys.getenv("CUDA_VISIBLE_DEVICES"))
  if (visible != (data$name == "/gpu:0")) stop("the slot has not the device ", data$name)
  expr
}
