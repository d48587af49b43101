// Optimizers of low rank: what they keep, against a plain f64 form of the same arithmetic, and that nothing of how a
// run goes changes a bit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ops/expect_error.hpp"
#include "tigon/core/philox.hpp"
#include "tigon/storage/files.hpp"
#include "tigon/storage/safetensors.hpp"
#include "train/small_model.hpp"
#include "train/weights_io.hpp"

namespace tigon::test {
namespace {

TrainConfig low_rank_run(Optimizer kind, const std::string& precision = "fp32") {
  TrainConfig train = small_run();
  train.precision = precision_from_string(precision);
  train.optimizer.kind = kind;
  train.optimizer.rank = kind == Optimizer::apollo_mini ? 0 : 5;
  train.optimizer.gap = 3;
  return train;
}

using Values = std::map<std::string, std::vector<double>>;

Values read_values(const std::filesystem::path& file) {
  const TensorFiles files = TensorFiles::open(file);
  Values values;
  for (const auto& [name, tensor] : files.tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
    files.read(tensor, 0, bytes.data(), tensor.bytes);
    std::vector<float> wide(bytes.size() / static_cast<size_t>(size_of(tensor.dtype)));
    widen(tensor.dtype, bytes, wide);
    values[name] = {wide.begin(), wide.end()};
  }
  return values;
}

// One matrix, as the paper has it: loops over doubles.
class PlainApollo {
 public:
  PlainApollo(int64_t rows, int64_t columns, uint32_t tensor, int64_t first_element, const TrainConfig& train)
      : rows_(rows),
        columns_(columns),
        rank_(rank_of(train.optimizer)),
        tensor_(tensor),
        first_(first_element),
        train_(train),
        m_(static_cast<size_t>(channels() * rank_)),
        v_(m_.size()) {}

  void step(std::vector<double>& weight, const std::vector<double>& grad, int64_t t, double lr) {
    const OptimizerOptions& o = train_.optimizer;
    const std::vector<double> r = project(grad, t);
    std::vector<double> n(r.size());
    for (size_t i = 0; i < r.size(); ++i) {
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * r[i];
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * r[i] * r[i];
      n[i] = m_[i] / (std::sqrt(v_[i]) + o.eps);
    }
    std::vector<double> update = grad;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        const int64_t channel = rows_ < columns_ ? j : i;
        const bool whole = o.kind == Optimizer::apollo_mini;
        const int64_t begin = whole ? 0 : channel * rank_, end = whole ? channels() * rank_ : begin + rank_;
        update[static_cast<size_t>(i * columns_ + j)] *= norm(n, begin, end) / (norm(r, begin, end) + 1e-8);
      }
    }
    const double length = norm(update, 0, std::ssize(update));
    const double limit = t == 1 ? 1 : std::max(length / (last_ + 1e-8), 1.01) / 1.01;
    last_ = length / limit;
    const auto d = static_cast<double>(t);
    const double step_size = lr * std::sqrt(1 - std::pow(o.beta2, d)) / (1 - std::pow(o.beta1, d));
    for (size_t i = 0; i < weight.size(); ++i) {
      weight[i] -= step_size * update[i] / limit * std::sqrt(scale_of(o));
      weight[i] -= lr * o.weight_decay * weight[i];
    }
  }

  const std::vector<double>& m() const { return m_; }
  const std::vector<double>& v() const { return v_; }
  double last() const { return last_; }

 private:
  int64_t channels() const { return std::max(rows_, columns_); }
  static double norm(const std::vector<double>& values, int64_t begin, int64_t end) {
    double sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += values[static_cast<size_t>(i)] * values[static_cast<size_t>(i)];
    return std::sqrt(sum);
  }
  std::vector<double> project(const std::vector<double>& grad, int64_t t) const {
    const RandomStream random{.seed = train_.seed ^ 0x4150'4F4C'4C4F'0001,
                              .step = static_cast<uint32_t>((t - 1) / gap_of(train_.optimizer)),
                              .tensor = tensor_};
    const auto p = [&](int64_t i) {
      return static_cast<double>(random.normal(static_cast<uint64_t>(first_ + i))) / std::sqrt(rank_);
    };
    const bool wide = rows_ < columns_;
    std::vector<double> r(m_.size());
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        for (int64_t k = 0; k < rank_; ++k) {
          const int64_t channel = wide ? j : i;
          r[static_cast<size_t>(channel * rank_ + k)] +=
              grad[static_cast<size_t>(i * columns_ + j)] * (wide ? p(i * rank_ + k) : p(k * columns_ + j));
        }
      }
    }
    return r;
  }

  int64_t rows_, columns_, rank_;
  uint32_t tensor_;
  int64_t first_;
  const TrainConfig& train_;
  std::vector<double> m_, v_;
  double last_ = 0;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  double largest = 0, difference = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(got[i] - expected[i]));
  }
  EXPECT_LT(difference, tolerance * largest) << what;
}

// Each of ten steps, by the gradients that the run itself has seen: weights, and in the end every state.
TEST(LowRank, IsThePapersArithmetic) {
  for (const Optimizer kind : {Optimizer::apollo, Optimizer::apollo_mini}) {
    for (const double clip : {0.0, 0.5}) {
      const TemporaryFolder folder(folder_in_memory());
      TrainConfig train = low_rank_run(kind);
      train.clip = clip;
      Trainer trainer(small_model(), train);
      trainer.initialize();
      trainer.save_weights(folder / "weights");
      Values weights = read_values(folder / "weights");
      const ParameterList parameters(small_model());
      std::map<std::string, PlainApollo> plain;
      for (size_t i = 0; i < parameters.all.size(); ++i) {
        const Parameter& p = parameters.all[i];
        if (!updated_whole(parameters, static_cast<int>(i), train)) continue;
        for (const ParameterPart& part : p.parts) {
          plain.emplace(part.name, PlainApollo(part.end - part.begin, p.sizes[1], static_cast<uint32_t>(i),
                                               part.begin * p.sizes[1], train));
        }
      }
      ASSERT_EQ(plain.size(), 14U);  // q, k, v, o, gate, up and down of two layers
      for (int64_t step = 1; step <= 10; ++step) {
        trainer.save_next_gradients(folder / "gradients");
        trainer.submit(small_batch(small_model(), train, step));
        const StepReport report = trainer.collect();
        trainer.save_weights(folder / "weights");
        const Values now = read_values(folder / "weights");
        Values gradients = read_values(folder / "gradients");
        const double scale = clip > 0 ? std::min(1.0, clip / (report.grad_norm + 1e-6)) : 1.0;
        for (auto& [name, matrix] : plain) {
          for (double& g : gradients[name]) g *= scale;
          std::vector<double> weight = weights[name];
          matrix.step(weight, gradients[name], step, report.lr);
          expect_near(now.at(name), weight, 1e-6, name + " in step " + std::to_string(step));
          weights[name] = now.at(name);
        }
      }
      trainer.save_checkpoint(folder / "state", {});
      const Values states = read_values(folder / "state" / "state.safetensors");
      const auto expect_state = [&](const char* parameter, std::initializer_list<const char*> modules) {
        std::vector<double> m, v, last;
        for (const char* module : modules) {
          const PlainApollo& matrix = plain.at(module);
          m.insert(m.end(), matrix.m().begin(), matrix.m().end());
          v.insert(v.end(), matrix.v().begin(), matrix.v().end());
          last.push_back(matrix.last());
        }
        expect_near(states.at(std::string(parameter) + ".m"), m, 1e-5, parameter);
        expect_near(states.at(std::string(parameter) + ".v"), v, 1e-5, parameter);
        expect_near(states.at(std::string(parameter) + ".last"), last, 1e-5, parameter);
      };
      expect_state("layers.1.qkv", {"model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
                                    "model.layers.1.self_attn.v_proj.weight"});
      expect_state("layers.0.gate_up", {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"});
      expect_state("layers.0.down", {"model.layers.0.mlp.down_proj.weight"});
      expect_state("layers.1.o", {"model.layers.1.self_attn.o_proj.weight"});
    }
  }
}

// GaLore by the projection that the run keeps: weights after each of ten steps, in f64, and what the projection is
// worth.
TEST(LowRank, GaloreIsAdamInTheSpaceOfTheLargestSingularVectors) {
  constexpr int64_t kRank = 5;
  const TemporaryFolder folder(folder_in_memory());
  TrainConfig train = low_rank_run(Optimizer::galore);
  train.optimizer.gap = 4;
  train.clip = 0;
  Trainer trainer(small_model(), train);
  trainer.initialize();
  trainer.save_weights(folder / "weights");
  Values weights = read_values(folder / "weights");
  struct Module {
    const char *name, *states;
    int64_t rows, columns, first_state, first_projected;
    std::vector<double> m, v;
  };
  std::vector<Module> modules = {
      {"model.layers.0.self_attn.v_proj.weight", "layers.0.qkv", 16, 24, (32 + 24) * kRank, (24 + 16) * kRank, {}, {}},
      {"model.layers.1.mlp.up_proj.weight", "layers.1.gate_up", 40, 24, 40 * kRank, 24 * kRank, {}, {}},
      {"model.layers.1.mlp.down_proj.weight", "layers.1.down", 24, 40, 0, 0, {}, {}}};
  for (int64_t step = 1; step <= 10; ++step) {
    trainer.save_next_gradients(folder / "gradients");
    trainer.submit(small_batch(small_model(), train, step));
    const double lr = trainer.collect().lr;
    trainer.save_checkpoint(folder / "state", {});
    const Values now = read_values(folder / "state" / "model.safetensors"),
                 states = read_values(folder / "state" / "state.safetensors"),
                 gradients = read_values(folder / "gradients");
    for (Module& module : modules) {
      const std::vector<double>& g = gradients.at(module.name);
      const std::vector<double>& all = states.at(std::string(module.states) + ".projection");
      const bool wide = module.rows < module.columns;
      const int64_t shorter = std::min(module.rows, module.columns), longer = std::max(module.rows, module.columns);
      const auto p = [&](int64_t k, int64_t s) {
        return all.at(static_cast<size_t>(module.first_projected + k * shorter + s));
      };
      const auto gradient = [&](int64_t c, int64_t s) {
        return g.at(static_cast<size_t>(wide ? s * module.columns + c : c * module.columns + s));
      };
      module.m.resize(static_cast<size_t>(longer * kRank));
      module.v.resize(module.m.size());
      std::vector<double> weight = weights.at(module.name);
      double kept = 0, whole = 0;
      for (int64_t c = 0; c < longer; ++c) {
        std::vector<double> n(kRank);
        for (int64_t k = 0; k < kRank; ++k) {
          double r = 0;
          for (int64_t s = 0; s < shorter; ++s) r += gradient(c, s) * p(k, s);
          kept += r * r;
          double &m = module.m[static_cast<size_t>(c * kRank + k)], &v = module.v[static_cast<size_t>(c * kRank + k)];
          m = 0.9 * m + 0.1 * r;
          v = 0.95 * v + 0.05 * r * r;
          n[static_cast<size_t>(k)] = m / (std::sqrt(v) + train.optimizer.eps);
        }
        const auto t = static_cast<double>(step);
        const double step_size = lr * std::sqrt(1 - std::pow(0.95, t)) / (1 - std::pow(0.9, t));
        for (int64_t s = 0; s < shorter; ++s) {
          whole += gradient(c, s) * gradient(c, s);
          double update = 0;
          for (int64_t k = 0; k < kRank; ++k) update += n[static_cast<size_t>(k)] * p(k, s);
          double& w = weight.at(static_cast<size_t>(wide ? s * module.columns + c : c * module.columns + s));
          w -= step_size * 0.25 * update;
          w -= lr * train.optimizer.weight_decay * w;
        }
      }
      // Where R and v are next to nothing, rounding is as large as they are.
      expect_near(now.at(module.name), weight, 1e-4, module.name + (" in step " + std::to_string(step)));
      if ((step - 1) % train.optimizer.gap == 0) {
        EXPECT_GT(kept, 0.6 * whole) << "5 of 16 or 24 directions";
      }
      for (int64_t i = 0; i < kRank; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          double dot = 0;
          for (int64_t s = 0; s < shorter; ++s) dot += p(i, s) * p(j, s);
          EXPECT_NEAR(dot, i == j ? 1 : 0, 1e-5);
        }
      }
    }
    weights = now;
  }
}

// All else is AdamW's: norms, embedding and head have the bits of a run of AdamW after a step.
TEST(LowRank, LeavesAllElseToAdamw) {
  const TemporaryFolder folder(folder_in_memory());
  std::vector<Values> weights;
  for (const Optimizer kind : {Optimizer::adamw, Optimizer::apollo}) {
    TrainConfig train = low_rank_run(kind);
    if (kind == Optimizer::adamw) train.optimizer.rank = train.optimizer.gap = 0;
    Trainer trainer(small_model(), train);
    trainer.initialize();
    trainer.submit(small_batch(small_model(), train, 0));
    (void)trainer.collect();
    trainer.save_weights(folder / "weights");
    weights.push_back(read_values(folder / "weights"));
  }
  for (const auto& [name, values] : weights[0]) {
    const bool matrix = name.find("_proj.") != std::string::npos;
    EXPECT_EQ(values == weights[1].at(name), !matrix) << name;
  }
}

TEST(LowRank, KeepsLittle) {
  const ModelConfig model = builtin_model("llama-3.2-1b");
  const ParameterList parameters(model);
  TrainConfig train;
  train.precision = precision_from_string("bf16-sr");
  train.optimizer.kind = Optimizer::apollo;
  const int64_t others = 2 * (int64_t{128256} * 2048 + (16 * 2 + 1) * 2048) * 2;  // m and v of the embedding and norms
  // q, o: 2048 rows; k, v: 2048 columns; gate, up, down: 8192.
  const int64_t channels = 16 * (4 * 2048 + 3 * 8192);
  EXPECT_EQ(state_bytes(parameters, train), others + channels * 256 * 2 * 2 + 16 * 7 * 4);
  train.optimizer.kind = Optimizer::apollo_mini;
  EXPECT_EQ(state_bytes(parameters, train), others + channels * 2 * 2 + 16 * 7 * 4);
  train.optimizer.kind = Optimizer::galore;
  train.optimizer.rank = 64;
  const int64_t shorter = 16 * (2 * 2048 + 2 * 512 + 3 * 2048);
  EXPECT_EQ(state_bytes(parameters, train), others + channels * 64 * 2 * 2 + shorter * 64 * 2);
}

struct Outcome {
  std::vector<double> losses;
  std::string state;
};
std::string state_of(const Trainer& trainer, const std::filesystem::path& folder) {
  trainer.save_checkpoint(folder, {});
  return read_text_file(folder / "model.safetensors", 1 << 26) + read_text_file(folder / "state.safetensors", 1 << 26);
}
Outcome run(const ModelConfig& model, const TrainConfig& train) {
  const TemporaryFolder folder(folder_in_memory());
  Trainer trainer(model, train);
  trainer.initialize();
  Outcome outcome;
  for (int64_t step = 0; step < 5; ++step) {
    trainer.submit(small_batch(model, train, step));
    outcome.losses.push_back(trainer.collect().loss);
  }
  outcome.state = state_of(trainer, folder / "state");
  EXPECT_EQ(trainer.used(), trainer.plan().bytes());
  return outcome;
}
void expect_same(const Outcome& got, const Outcome& expected, const std::string& what) {
  EXPECT_EQ(got.losses, expected.losses) << what;
  EXPECT_TRUE(got.state == expected.state) << what;
}

constexpr Optimizer kKinds[] = {Optimizer::apollo, Optimizer::apollo_mini, Optimizer::galore};

// Those that it runs with.
std::vector<std::string> precisions_of(Optimizer kind) {
  std::vector<std::string> names = precision_names();
  if (kind == Optimizer::galore) std::erase(names, "fp16");
  return names;
}

TEST(LowRank, EveryHomeAndUpdaterHasTheSameBits) {
  struct Case {
    const char* homes;
    Updater updater;
  };
  const Case cases[] = {{"optimizer", Updater::cpu},
                        {"optimizer", Updater::gpu},
                        {"all", Updater::automatic},
                        {"all+checkpoints", Updater::gpu},
                        {"states=host", Updater::gpu},
                        {"weights=host", Updater::gpu},
                        {"gradients=host", Updater::gpu},
                        {"all,states=nvme", Updater::automatic},
                        {"weights=nvme,gradients=nvme,states=nvme,checkpoints=nvme", Updater::cpu}};
  for (const Optimizer kind : kKinds) {
    for (const std::string& precision : precisions_of(kind)) {
      for (const int64_t accumulate : {1, 3}) {
        TrainConfig train = low_rank_run(kind, precision);
        train.accumulate = accumulate;
        train.clip = accumulate == 1 ? 0.5 : 0;
        const ModelConfig model = accumulate == 1 ? small_model() : small_qwen3();
        const Outcome resident = run(model, train);
        for (const Case& c : cases) {
          train.memory.homes = homes_from_string(c.homes);
          train.memory.updater = c.updater;
          train.memory.update_piece = 37;  // of what is not of low rank
          expect_same(run(model, train), resident,
                      precision + " " + c.homes + " by " + std::string(to_string(c.updater)));
        }
      }
    }
  }
}

TEST(LowRank, EarlyByLayersAndWithAnyThreadsToo) {
  for (const Optimizer kind : kKinds) {
    for (const char* precision : {"fp32", "bf16", "bf16-sr"}) {
      TrainConfig train = low_rank_run(kind, precision);
      train.clip = 0;
      const Outcome late = run(small_model(), train);
      train.memory.update_early = true;
      expect_same(run(small_model(), train), late, precision);
      train.memory.update_early = false;
      train.threads = 2;
      expect_same(run(small_model(), train), late, precision);
      train.accumulate = 3;
      const Outcome by_batches = run(small_model(), train);
      train.memory.order = Order::layers;
      expect_same(run(small_model(), train), by_batches, precision);
    }
  }
}

// In the middle of what shares a projection, and at its end.
TEST(LowRank, ResumesBitwise) {
  for (const Optimizer kind : kKinds) {
    for (const std::string& precision : precisions_of(kind)) {
      for (const int64_t stop : {2, 3, 4}) {
        const TemporaryFolder folder(folder_in_memory());
        const TrainConfig train = low_rank_run(kind, precision);
        const auto steps = [&](Trainer& trainer, int64_t begin, int64_t end) {
          for (int64_t step = begin; step < end; ++step) {
            trainer.submit(small_batch(small_model(), train, step));
            (void)trainer.collect();
          }
        };
        Trainer whole(small_model(), train);
        whole.initialize();
        steps(whole, 0, stop);
        whole.save_checkpoint(folder / "middle", {});
        steps(whole, stop, 8);
        Trainer resumed(small_model(), train);
        resumed.restore_checkpoint(folder / "middle", {});
        steps(resumed, stop, 8);
        EXPECT_TRUE(state_of(resumed, folder / "resumed") == state_of(whole, folder / "whole"))
            << precision << " from " << stop;
      }
    }
  }
}

TEST(LowRank, LearnsABatchByHeart) {
  for (const Optimizer kind : kKinds) {
    for (const std::string& precision : precisions_of(kind)) {
      TrainConfig train = low_rank_run(kind, precision);
      train.optimizer.lr = 2e-2;
      train.optimizer.scale = 1;
      train.schedule.decay = Decay::constant;
      Trainer trainer(small_model(), train);
      trainer.initialize();
      double first = 0, loss = 0;
      for (int i = 0; i < 60; ++i) {
        trainer.submit(small_batch(small_model(), train, 0));
        loss = trainer.collect().loss;
        if (i == 0) first = loss;
      }
      EXPECT_GT(first, 3.5);
      EXPECT_LT(loss, 0.5) << precision << " " << to_string(kind);
    }
  }
}

TEST(LowRank, ASmallerGapDrawsAnotherProjection) {
  TrainConfig train = low_rank_run(Optimizer::apollo);
  train.optimizer.gap = 1;
  const Outcome often = run(small_model(), train);
  train.optimizer.gap = 100;
  const Outcome once = run(small_model(), train);
  EXPECT_EQ(often.losses[1], once.losses[1]);  // the first step has the same
  EXPECT_NE(often.losses[2], once.losses[2]);
  train.optimizer.rank = 6;
  EXPECT_NE(run(small_model(), train).losses[1], once.losses[1]);
}

TEST(LowRank, WhatMakesNoSenseIsRefused) {
  const auto refuse = [](auto change, ErrorCode code, const char* text) {
    TrainConfig train = low_rank_run(Optimizer::apollo);
    change(train);
    expect_error([&] { Trainer trainer(small_model(), train); }, code, text);
  };
  const ErrorCode invalid = ErrorCode::invalid_argument;
  refuse([](auto& t) { t.optimizer.rank = 17; }, invalid, "k_proj.weight' is 16 x 24");  // before the shorter q and v
  refuse([](auto& t) { t.optimizer.rank = 0; }, invalid, "got 256");
  refuse([](auto& t) { t.optimizer.rank = -1; }, invalid, "rank");
  refuse([](auto& t) { t.optimizer.scale = -1; }, invalid, "scale");
  refuse([](auto& t) { t.optimizer.kind = Optimizer::adamw; }, invalid, "--optimizer apollo");
  refuse(
      [](auto& t) {
        t.optimizer.kind = Optimizer::galore;
        t.precision = precision_from_string("fp16");
      },
      ErrorCode::unsupported, "--precision bf16");
  refuse([](auto& t) { t.lora = lora_from_string("r=4"); }, invalid, "adapters");
  refuse(
      [](auto& t) {
        t.memory.homes = homes_from_string("optimizer");
        t.memory.updater = Updater::both;
      },
      ErrorCode::unsupported, "--update both");
  // On a GPU the device updates what the two would have shared.
  EXPECT_EQ(
      settled_updater(Updater::automatic, homes_from_string("all"), {.kind = DeviceKind::cuda}, Optimizer::apollo),
      Updater::gpu);
}

}  // namespace
}  // namespace tigon::test
