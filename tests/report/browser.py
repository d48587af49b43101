"""A headless Chromium, spoken to by its DevTools protocol over two pipes."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        assert program, "these tests need Chromium: apt-get install chromium"
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        in_read, self.to = os.pipe()
        self.back, out_write = os.pipe()

        def at_three_and_four():  # where Chromium looks for its pipes
            first, second = os.dup(in_read), os.dup(out_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars",
             f"--user-data-dir={self.folder.name}", "--no-first-run", "--disable-dev-shm-usage", "about:blank"],
            preexec_fn=at_three_and_four, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(in_read)
        os.close(out_write)
        self.numbers, self.events, self.rest = itertools.count(1), [], b""

    def close(self):
        self.process.terminate()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.folder.cleanup()

    def _next(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            data = os.read(self.back, 1 << 20)
            assert data, "Chromium is gone"
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        deadline = time.monotonic() + 120
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, path, width=1280, height=900, dark=False, scale=1, phone=False):
        return Page(self, path, width, height, dark, scale, phone)


class Page:
    """A page in a tab of its own, loaded; high enough, and all of its charts are drawn."""

    def __init__(self, browser, path, width, height, dark, scale, phone):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone
        )
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 120
        while self.value("document.readyState + location.protocol") != "completefile:":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.frames()

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def frames(self, count=3):
        """Lets the page draw."""
        self.value(
            f"new Promise(done => {{ let n = {count};"
            "const next = () => n-- ? requestAnimationFrame(next) : done(); next(); })"
        )

    def complaints(self):
        """Whatever the console, the page's errors or the network say."""
        self.value("1")
        mine = [e for e in self.browser.events if e.get("sessionId") == self.session]
        found = [e["params"] for e in mine if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        found += [
            e["params"]
            for e in mine
            if e["method"] == "Runtime.consoleAPICalled" and e["params"]["type"] in ("error", "warning", "assert")
        ]
        return found

    def requests(self):
        mine = [e for e in self.browser.events if e.get("sessionId") == self.session]
        return [e["params"]["request"]["url"] for e in mine if e["method"] == "Network.requestWillBeSent"]

    def screenshot(self, file, whole=True):
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {
                "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
                "captureBeyondViewport": True,
            }
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **clip)["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
