#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "train/corpus.hpp"

namespace tigon {

inline size_t worker_count(int threads) {
  return threads > 0 ? static_cast<size_t>(threads) : std::max(1u, std::thread::hardware_concurrency());
}

// Sends pieces through workers, each with a thread of its own and what it needs to itself; the results are in the order
// of the pieces. An exception is that of the first piece that had one.
template <class Worker>
auto run_workers(std::vector<Worker>& workers, const std::vector<CorpusPiece>& pieces) {
  std::vector<decltype(workers[0](pieces[0]))> results(pieces.size());
  std::vector<std::exception_ptr> failures(pieces.size());
  std::atomic<size_t> next = 0;
  const auto work = [&](Worker& worker) {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      try {
        results[i] = worker(pieces[i]);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(workers.size(), pieces.size()); ++i)
      threads.emplace_back([&, i] { work(workers[i]); });
    work(workers[0]);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return results;
}

constexpr int64_t kBytesPerWorker = int64_t{16} << 20;

// All of a corpus, some pieces at a time. False where `progress` ended it.
template <class Worker, class Collect>
bool work_through(Corpus& corpus, std::vector<Worker>& workers, const std::function<bool(int64_t, int64_t)>& progress,
                  const Collect& collect) {
  for (bool more = true; more;) {
    std::vector<CorpusPiece> pieces;
    const auto enough = static_cast<int64_t>(workers.size()) * kBytesPerWorker;
    int64_t bytes = 0;
    for (CorpusPiece piece; pieces.size() < 4 * workers.size() && bytes < enough && (more = corpus.next(piece));) {
      bytes += piece.bytes;
      pieces.push_back(std::move(piece));
    }
    for (const auto& result : run_workers(workers, pieces)) collect(result);
    if (!progress(corpus.place().done, corpus.bytes())) return false;
  }
  return true;
}

}  // namespace tigon
