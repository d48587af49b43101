// Workers, lanes and moments: order, waiting, and where a failure is heard of.
#include "train/residency/lane.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <stdexcept>

#include "tigon/memory/arena.hpp"
#include "train/residency/in_flight.hpp"
#include "train/residency/update_job.hpp"
#include "train/small_model.hpp"
#include "train/wait_clock.hpp"

namespace tigon::test {
namespace {

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(Worker, RunsTasksInOrderAndEndsThemAll) {
  std::vector<int> order;
  std::atomic<int> done = 0;
  Moment middle;
  {
    Worker worker;
    for (int i = 0; i < 100; ++i) {
      const Moment moment = worker.add([&order, &done, i] {
        if (i == 0) nap();
        order.push_back(i);
        ++done;
      });
      if (i == 50) middle = moment;
    }
    middle.wait();
    EXPECT_GE(done, 51);
  }
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(Worker, AFailureIsHeardByWhoeverWaits) {
  Flag go;
  Worker worker;
  const Moment failed = worker.add([&go] {
    go.wait();
    throw std::runtime_error("a broken disk");
  });
  failed.check();  // nothing is known yet
  go.raise();
  const Moment next = worker.add([] {});
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_THROW(failed.check(), std::runtime_error);
  EXPECT_THROW(failed.hold({}), std::runtime_error);
  next.wait();  // the others go on
}

TEST(Moment, WithoutATaskHasHappened) {
  const Moment moment;
  moment.wait();
  moment.check();
  moment.hold({});
}

struct Tensors {
  std::vector<float> from = std::vector<float>(1000, 1.0f), to = std::vector<float>(1000, 0.0f);
  Lane::Copy copy() {
    return {.to = Tensor::contiguous(to.data(), DType::f32, {1000}),
            .from = Tensor::contiguous(from.data(), DType::f32, {1000})};
  }
};

TEST(Lane, CopiesAfterWhatItIsToldToWaitFor) {
  Worker worker;
  Lane lane({});
  Tensors t;
  const Moment written = worker.add([&] {
    nap();
    t.from.assign(1000, 2.0f);
  });
  const Lane::Copy copy = t.copy();
  lane.copy({}, {&copy, 1}, written).wait();
  EXPECT_EQ(t.to, t.from);
  EXPECT_EQ(t.to[999], 2.0f);
}

TEST(Lane, WhatItWaitsForInVainIsNotCopied) {
  Worker worker;
  Lane lane({});
  Tensors t;
  const Lane::Copy copy = t.copy();
  const Moment moment = lane.copy({}, {&copy, 1}, worker.add([] { throw std::runtime_error("no update"); }));
  EXPECT_THROW(moment.wait(), std::runtime_error);
  EXPECT_EQ(t.to[0], 0.0f);
}

TEST(Lane, MovesNothingInMeasureMode) {
  Ledger ledger;
  MeasureArena arena(ledger);
  Lane lane({});
  Tensors t;
  const Lane::Copy copy = t.copy();
  lane.copy({.memory = &arena}, {&copy, 1}).wait();
  EXPECT_EQ(t.to[0], 0.0f);
  EXPECT_EQ(lane.bytes(), 4000);  // that would be
}

// Where an error comes before a copy is joined, its memory does not go back too soon.
TEST(InFlight, WaitsForTheCopyBeforeItLetsGo) {
  Worker worker;
  HeapArena heap;
  bool copied = false;
  {
    std::vector<OwnedTensor> tensors;
    tensors.emplace_back(Context{.memory = &heap}, "tensor", DType::f32, std::initializer_list<int64_t>{8},
                         MemoryClass::other);
    float* const data = tensors.back().view.as<float>();
    const InFlight flying(std::move(tensors), worker.add([&copied, data] {
      nap();
      data[0] = 1.0f;
      copied = true;
    }));
  }
  EXPECT_TRUE(copied);
}

TEST(Moment, OfSeveralIsThatOfTheLast) {
  Worker slow, fast;
  int done = 0;
  const Moment both = Moment::all({fast.add([] {}), slow.add([&done] {
                                     nap();
                                     done = 1;
                                   })});
  both.hold({});
  EXPECT_EQ(done, 1);
  const Moment failed = Moment::all({Moment(), slow.add([] { throw std::runtime_error("late"); })});
  EXPECT_THROW(failed.wait(), std::runtime_error);
  EXPECT_THROW(failed.check(), std::runtime_error);
}

// Tells a task that somebody waits by now.
class Waiting final : public Observer {
 public:
  explicit Waiting(Observer& inner) : inner_(inner) {}
  void enter(const Context& ctx, std::string_view name, int64_t index) override {
    inner_.enter(ctx, name, index);
    waits_ = true;
    waits_.notify_all();
  }
  void leave(const Context& ctx) noexcept override { inner_.leave(ctx); }
  // A task that then takes its time.
  std::function<void()> nap_from_then_on() {
    waits_ = false;
    return [this] {
      waits_.wait(false);
      nap();
    };
  }

 private:
  Observer& inner_;
  std::atomic<bool> waits_ = false;
};

TEST(WaitClock, TellsWhatWasWaitedFor) {
  WaitClock clock;
  Waiting waiting(clock);
  Worker worker;
  const Context ctx{.observer = &waiting};
  worker.add(waiting.nap_from_then_on()).hold(ctx);
  const auto task = waiting.nap_from_then_on();
  Moment::all({worker.add(task), worker.add(task)}).hold(ctx, kWaitForUpdates);
  {
    const Scope other(ctx, "layers");
    worker.add([] {}).wait();
  }
  Waits waits = clock.seconds(clock.take());
  EXPECT_GE(waits.copies, 0.02);
  EXPECT_GE(waits.updates, 0.04);
  Moment().hold(ctx);
  waits = clock.seconds(clock.take());
  EXPECT_EQ(waits.copies + waits.updates, 0);
}

// All of a part is taken once, piece by piece, and it is done when the last one leaves.
TEST(UpdateJob, IsDoneWhenEverybodyHasLeftIt) {
  const ParameterList parameters(small_model());
  const int part = parameters.block_part(1);
  const TrainConfig train;
  UpdateJob job(parameters, train, part, 2, {});
  std::map<int, int64_t> taken;
  for (int64_t most = 7; const auto piece = job.take(most); most = most == 7 ? 1000 : 7) {
    EXPECT_EQ(piece->first, taken[piece->parameter]);
    EXPECT_LE(piece->elements, most);
    taken[piece->parameter] += piece->elements;
  }
  const Part& p = parameters.parts[static_cast<size_t>(part)];
  EXPECT_EQ(static_cast<int>(taken.size()), p.end - p.begin);
  for (const auto& [parameter, elements] : taken) {
    EXPECT_EQ(elements, parameters.all[static_cast<size_t>(parameter)].elements());
  }
  Worker late;
  bool home = false;
  Worker waiting;
  job.leave({}, nullptr);
  const Moment heard = waiting.add([&] { job.done().wait(); });
  nap();
  job.leave(late.add([&home] {
    nap();
    home = true;
  }),
            nullptr);
  heard.wait();
  EXPECT_TRUE(home);
}

TEST(UpdateJob, OnesFailureEndsItForAll) {
  const ParameterList parameters(small_model());
  const TrainConfig train;
  UpdateJob job(parameters, train, 0, 2, {});
  EXPECT_TRUE(job.take(1));
  job.leave({}, std::make_exception_ptr(std::runtime_error("no device")));
  EXPECT_FALSE(job.take(1));
  job.done().check();  // nobody knows yet
  job.leave({}, nullptr);
  EXPECT_THROW(job.done().wait(), std::runtime_error);
  EXPECT_THROW(job.done().check(), std::runtime_error);
}

}  // namespace
}  // namespace tigon::test
