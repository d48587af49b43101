/* The C ABI from C: compiles as C11, runs, explains itself. Exits with the number of the failed check. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tigon/tigon.h"

static int checks = 0;
#define CHECK(condition)                                                                      \
  do {                                                                                        \
    ++checks;                                                                                 \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "check failed: %s (last error: %s)\n", #condition, tigon_last_error()); \
      return checks;                                                                          \
    }                                                                                         \
  } while (0)

static tigon_tensor matrix(void* data, int64_t rows, int64_t columns) {
  tigon_tensor t = {0};
  t.data = data;
  t.dtype = TIGON_F32;
  t.rank = 2;
  t.sizes[0] = rows, t.sizes[1] = columns;
  t.strides[0] = columns, t.strides[1] = 1;
  return t;
}

static tigon_tensor vector(void* data, int32_t dtype, int64_t n) {
  tigon_tensor t = {0};
  t.data = data;
  t.dtype = dtype;
  t.rank = 1;
  t.sizes[0] = n;
  t.strides[0] = 1;
  return t;
}

int main(void) {
  float x[8] = {1, 2, 3, 4, 4, 3, 2, 1}, y[8] = {0}, weight[4] = {1, 1, 1, 1};
  tigon_context context = TIGON_CONTEXT_INIT;
  tigon_rmsnorm_forward_args norm = TIGON_RMSNORM_FORWARD_INIT;
  int64_t bytes = -1;
  CHECK(strlen(tigon_version()) >= 5);
  CHECK(norm.eps == 1e-6);
  norm.x = matrix(x, 2, 4);
  norm.y = matrix(y, 2, 4);
  norm.weight = vector(weight, TIGON_F32, 4);

  /* Scratch: asked for, passed in, missed when it is too small. */
  CHECK(tigon_rmsnorm_forward_scratch(&context, &norm, &bytes) == TIGON_OK && bytes > 0);
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_OUT_OF_MEMORY);
  CHECK(strstr(tigon_last_error(), "scratch") != NULL);
  CHECK(y[0] == 0);
  context.scratch = malloc((size_t)bytes + 1);
  CHECK(context.scratch != NULL);
  context.scratch_bytes = bytes;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_OK);
  CHECK(fabsf(y[0] - 1.0f / sqrtf(7.5f)) < 1e-6f);

  /* Refusals: each says why, and nothing was written. */
  norm.y.data = NULL;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "'y'"));
  norm.y.data = y;
  norm.x.rank = 9;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "rank"));
  norm.x.rank = 2;
  /* An optional tensor whose rank was forgotten is not an absent one. */
  norm.weight.rank = 0;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "rank is 0"));
  CHECK(tigon_rmsnorm_forward_scratch(&context, &norm, &bytes) == TIGON_INVALID_ARGUMENT);
  norm.weight.data = NULL;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_OK);
  norm.weight = vector(weight, TIGON_F32, 4);
  norm.struct_size = 4096;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "struct_size"));
  norm.struct_size = sizeof(norm);
  CHECK(tigon_rmsnorm_forward(NULL, &norm) == TIGON_INVALID_ARGUMENT);
  CHECK(tigon_rmsnorm_forward(&context, NULL) == TIGON_INVALID_ARGUMENT);
  CHECK(tigon_rmsnorm_forward_scratch(&context, &norm, NULL) == TIGON_INVALID_ARGUMENT);
  context.device = 7;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT);
  context.device = TIGON_CPU;
  context.threads = -1;
  CHECK(tigon_rmsnorm_forward(&context, &norm) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "'threads'"));
  context.threads = 0;

  /* A loss with its gradient; the default ignore_index is -100. */
  {
    int64_t target[2] = {3, -100};
    float loss = -1, dlogits[8];
    tigon_cross_entropy_forward_args ce = TIGON_CROSS_ENTROPY_FORWARD_INIT;
    ce.logits = matrix(x, 2, 4);
    ce.target = vector(target, TIGON_I64, 2);
    ce.out.loss = vector(&loss, TIGON_F32, 1);
    ce.dlogits = matrix(dlogits, 2, 4);
    CHECK(tigon_cross_entropy_forward_scratch(&context, &ce, &bytes) == TIGON_OK);
    free(context.scratch);
    context.scratch = malloc((size_t)bytes + 1);
    context.scratch_bytes = bytes;
    CHECK(tigon_cross_entropy_forward(&context, &ce) == TIGON_OK);
    CHECK(fabsf(loss - 0.4401897f) < 1e-5f);
    CHECK(fabsf(dlogits[3] - (0.6439143f - 1.0f)) < 1e-5f && dlogits[4] == 0);
    target[0] = 4;
    loss = -1;
    CHECK(tigon_cross_entropy_forward(&context, &ce) == TIGON_INVALID_ARGUMENT && loss == -1);
    CHECK(strstr(tigon_last_error(), "out of range at position 0") != NULL);
  }
  /* A list of updates: their structs follow one another, at the distance that the first one's struct_size says. */
  {
    float param[2] = {1, 1}, grad[2] = {1, -1}, m[2] = {0, 0}, v[2] = {0, 0};
    tigon_adamw_args updates[2] = {TIGON_ADAMW_INIT, TIGON_ADAMW_INIT};
    tigon_adamw_list_args list = TIGON_ADAMW_LIST_INIT;
    for (int i = 0; i < 2; ++i) {
      updates[i].param = vector(&param[i], TIGON_F32, 1);
      updates[i].grad = vector(&grad[i], TIGON_F32, 1);
      updates[i].m = vector(&m[i], TIGON_F32, 1);
      updates[i].v = vector(&v[i], TIGON_F32, 1);
      updates[i].lr = 0.25;
    }
    list.updates = updates;
    list.update_count = 2;
    CHECK(tigon_adamw_list(&context, &list) == TIGON_OK);
    CHECK(fabsf(param[0] - 0.75f) < 1e-6f && fabsf(param[1] - 1.25f) < 1e-6f);
    updates[1].struct_size = 64;
    CHECK(tigon_adamw_list(&context, &list) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "one size"));
    list.update_count = -1;
    CHECK(tigon_adamw_list(&context, &list) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "count of -1"));
    list.update_count = 1;
    list.updates = NULL;
    CHECK(tigon_adamw_list(&context, &list) == TIGON_INVALID_ARGUMENT && strstr(tigon_last_error(), "NULL"));
    list.update_count = 0;
    CHECK(tigon_adamw_list(&context, &list) == TIGON_OK);
  }
  free(context.scratch);
  printf("%d checks passed\n", checks);
  return 0;
}
