"""The page of `hf-posenc explore` as a Hugging Face Space: the same page, without folders of the machine it runs on.

README.md beside it says how to push it. Here: `python examples/space/app.py`.
"""

from hf_posenc.explorer import build, look

demo = build(folders=False)

if __name__ == "__main__":
    demo.launch(ssr_mode=False, max_file_size=1, **look())
