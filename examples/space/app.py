"""The page of `hf-posenc explore` as a Hugging Face Space, without access to folders of its machine.

README.md explains how to push it. To run it on your machine: `python examples/space/app.py`.
"""

from hf_posenc.explorer import build, look

demo = build(folders=False)

if __name__ == "__main__":
    demo.launch(ssr_mode=False, max_file_size=1, **look())
